#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models of Hugging Face's transformers, with small random configurations and random weights,
unmodified: `attn_implementation="neptune"` and `torch.compile(backend="neptune")`, with that
attention and with the model's own, against eager mode, and processor time beside inductor's.

    tools/torch_models.py [--only REGEX] [--seed 0] [--no-compile] [--limit 600] [--out rows.jsonl]

Batches are padded, packed (several documents in a row, told apart by their positions) and
generated from. Each model runs in a process of its own.
"""

from __future__ import annotations

import argparse
import copy
import functools
import math
import random
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch_children

TOLERANCE = 2e-5  # of the largest logit: two layers of float32 sums in another order
NEW = 6  # tokens that are generated
LENGTH = 96
ROUNDS = 30
CLASSES = {
    "Llama": "LlamaForCausalLM", "Gemma2": "Gemma2ForCausalLM", "Qwen2": "Qwen2ForCausalLM",
    "Qwen3": "Qwen3ForCausalLM", "Mistral": "MistralForCausalLM",
    "DeepseekV2": "DeepseekV2ForCausalLM", "GptOss": "GptOssForCausalLM", "Bert": "BertModel",
    "ViT": "ViTModel", "Whisper": "WhisperForConditionalGeneration",
    "T5": "T5ForConditionalGeneration", "Gemma3": "Gemma3ForCausalLM", "Phi3": "Phi3ForCausalLM",
    "Mixtral": "MixtralForCausalLM", "Llama4": "Llama4ForCausalLM", "Olmo2": "Olmo2ForCausalLM",
    "Granite": "GraniteForCausalLM", "ModernBert": "ModernBertModel", "Siglip": "SiglipVisionModel",
}  # fmt: skip
KINDS = ("padded", "packed", "images", "sound")
OURS = ("compiled", "its own")  # our backend: with our attention by name, with the model's own
COMPILED = tuple(f"{how} {kind}" for how in OURS for kind in KINDS)
CAUSAL = ("Llama", "Gemma2", "Qwen2", "Qwen3", "Mistral", "DeepseekV2", "GptOss", "Gemma3", "Phi3",
          "Mixtral", "Llama4", "Olmo2", "Granite")  # fmt: skip
IMAGES = ("ViT", "Siglip")
CONFIGS = {"Gemma3": "Gemma3TextConfig", "Llama4": "Llama4TextConfig",
           "Siglip": "SiglipVisionConfig"}  # fmt: skip


def options_of(name: str, dice: random.Random) -> dict[str, Any]:
    """A small random configuration."""
    heads, dim = dice.choice([4, 8]), dice.choice([16, 32])
    hidden, wide = heads * dim, dice.choice([128, 192])
    tokens = {"vocab_size": 200, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    common = {"hidden_size": hidden, "num_hidden_layers": 2, "num_attention_heads": heads,
              "intermediate_size": wide}  # fmt: skip
    grouped = {**tokens, **common, "num_key_value_heads": heads // dice.choice([1, 2, 4])}
    window = dice.choice([8, 24])
    if name == "T5":
        return {**tokens, "d_model": hidden, "d_kv": dim, "d_ff": wide, "num_layers": 2,
                "num_heads": heads, "decoder_start_token_id": 0}  # fmt: skip
    if name == "Whisper":
        side = {"layers": 2, "attention_heads": heads, "ffn_dim": wide}
        layers = {f"{s}_{what}": n for s in ("encoder", "decoder") for what, n in side.items()}
        return {**tokens, **layers, "d_model": hidden, "num_mel_bins": 20,
                "decoder_start_token_id": 1, "max_source_positions": 48,
                "max_target_positions": 128, "suppress_tokens": None,
                "begin_suppress_tokens": None}  # fmt: skip
    if name in IMAGES:
        return {**common, "image_size": 32, "patch_size": dice.choice([4, 8])}
    if name == "Bert":
        return {**tokens, **common}
    if name == "ModernBert":
        return {**tokens, **common, "local_attention": 2 * window, "cls_token_id": 1,
                "sep_token_id": 2, "global_attn_every_n_layers": 2}  # fmt: skip
    if name == "DeepseekV2":
        return {**grouped, "num_key_value_heads": heads, "q_lora_rank": dice.choice([None, 24]),
                "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": dim,
                "v_head_dim": dim, "head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
                "moe_intermediate_size": 64, "first_k_dense_replace": 1, "n_group": 1,
                "topk_group": 1}  # fmt: skip
    more = {
        "Gemma2": {"head_dim": dim, "sliding_window": window, "attn_logit_softcapping": 20.0},
        "Qwen3": {"head_dim": dim}, "Mistral": {"sliding_window": window, "head_dim": dim},
        "GptOss": {"head_dim": dim, "sliding_window": window, "num_local_experts": 4,
                   "num_experts_per_tok": 2},
        "Gemma3": {"head_dim": dim, "sliding_window": window, "query_pre_attn_scalar": dim,
                   "layer_types": ["sliding_attention", "full_attention"]},
        "Mixtral": {"num_local_experts": 4, "sliding_window": dice.choice([None, window])},
        "Llama4": {"head_dim": dim, "attention_chunk_size": 2 * window, "num_local_experts": 4,
                   "intermediate_size_mlp": wide},
        "Granite": {"attention_multiplier": 0.1, "residual_multiplier": 0.5},
    }  # fmt: skip
    return {**grouped, **more.get(name, {})}


def model_of(name: str, seed: int) -> Any:
    import torch
    import transformers

    base = re.sub(r"(For|Model).*", "", CLASSES[name])
    torch.manual_seed(seed)
    kind = getattr(transformers, CONFIGS.get(name, f"{base}Config"))
    config = kind(**options_of(name, random.Random(seed)))
    model = getattr(transformers, CLASSES[name])(config).eval()
    for key, parameter in model.named_parameters():
        if key.endswith("sinks"):
            torch.nn.init.normal_(parameter)
    return model


def batches(name: str, model: Any) -> dict[str, dict[str, Any]]:
    """Padded, and where the model takes them packed sequences."""
    import torch

    if name in IMAGES:
        return {"images": {"pixel_values": torch.randn(3, 3, 32, 32)}}
    ids = torch.randint(3, 200, (3, LENGTH))
    if name == "Whisper":
        sound = torch.randn(3, 20, 96)
        return {"sound": {"input_features": sound, "decoder_input_ids": ids[:, :20]}}
    seen = torch.ones(3, LENGTH, dtype=torch.long)
    seen[0, :17], seen[1, :60] = 0, 0
    if name in ("Bert", "T5", "ModernBert"):
        seen = seen.flip(1)
    given = {"input_ids": ids, "attention_mask": seen}
    if name == "T5":
        return {"padded": {**given, "decoder_input_ids": ids[:, :20]}}
    found = {"padded": given}
    if name in CAUSAL:
        positions = torch.cat([torch.arange(n) for n in (30, 41, LENGTH - 71)])[None]
        found["packed"] = {"input_ids": ids[:1], "position_ids": positions}
    return found


def difference(model: Any, given: dict[str, Any], wanted: Any, program: Any) -> float:
    """How far a model's first result is from another, beside the largest; padding left out."""
    import torch

    with torch.no_grad():
        found = program(**given, use_cache=False)[0] if "pixel_values" not in given else (
            program(**given)[0])  # fmt: skip
    if wanted is None:
        return found
    rows = slice(None)
    if "attention_mask" in given and "decoder_input_ids" not in given:
        rows = given["attention_mask"].bool()
    return ((found - wanted)[rows].abs().max() / wanted[rows].abs().max()).item()


def tried(name: str, seed: int, compiles: bool) -> dict[str, Any]:
    """A model through eager mode, through our attention, and compiled."""
    import torch

    from neptune_mlir.torch import op, transformers

    calls: list[Any] = []
    run = op.run
    op.run = lambda *arguments: calls.append(None) or run(*arguments)
    model, row = model_of(name, seed), {}
    transformers.register()  # its names alone: torch's own attention is what inductor is given
    given = batches(name, model)
    model.set_attn_implementation("eager")
    wanted = {kind: difference(model, b, None, model) for kind, b in given.items()}
    tokens = generated(name, model, given)
    model.set_attn_implementation("neptune")
    calls.clear()
    with mock.patch.object(transformers, "is_worth_a_call", lambda *_: True):  # however small
        for kind, batch in given.items():
            row[kind] = difference(model, batch, wanted[kind], model)
        row["kernel calls"] = len(calls)
        same = tokens is None or torch.equal(tokens, generated(name, model, given))
    row["generates the same"] = same
    if compiles:
        row |= compiled(model, given, wanted, calls)
    worst = max(v for k, v in row.items() if k in given or k in COMPILED)
    right = worst <= TOLERANCE and row["generates the same"] and row["kernel calls"]
    most = max(row.get(f"{how} graph breaks", 0) for how in OURS)
    broken = most > row.get("inductor graph breaks", 0)
    said = f"off by {worst:.1e}, {row['kernel calls']} kernel calls"
    if compiles:
        said += f", {most} graph breaks, {row['compiled speed']:.2f} of inductor's speed, with its "
        said += f"own attention {row['its own speed']:.2f}"
    return {**row, "status": "right" if right and not broken else "wrong", "message": said}


def generated(name: str, model: Any, given: dict[str, Any]) -> Any:
    import torch

    if not hasattr(model, "generate") or not model.can_generate():
        return None
    batch = {k: v for k, v in next(iter(given.values())).items() if k != "decoder_input_ids"}
    with torch.no_grad():
        return model.generate(**batch, max_new_tokens=NEW, do_sample=False)


def compiled(
    model: Any, given: dict[str, Any], wanted: dict[str, Any], calls: list[Any]
) -> dict[str, Any]:
    """Our backend with our attention and with the model's own, and inductor with the latter."""
    import torch

    from neptune_mlir.torch.backend import neptune

    row: dict[str, Any] = {}
    theirs = "sdpa" if model._supports_sdpa else "eager"
    if getattr(model.config, "attn_logit_softcapping", None):
        theirs = "eager"  # torch's operation has no cap: transformers leaves it out
    programs = {}
    torch._dynamo.reset()
    for name, how, backend in (
        ("compiled", "neptune", neptune), ("its own", theirs, neptune),
        ("inductor", theirs, "inductor"),
    ):  # fmt: skip
        own = copy.deepcopy(model)
        own.set_attn_implementation(how)
        torch._dynamo.utils.counters.clear()
        # a backend of its own, so that dynamo tries no guard of another program
        backend = functools.partial(backend) if callable(backend) else backend
        programs[name] = torch.compile(own, backend=backend, dynamic=False)
        calls.clear()
        for kind, batch in list(given.items())[: None if how == "neptune" else 1]:
            row[f"{name} {kind}"] = difference(own, batch, wanted[kind], programs[name])
        row[f"{name} kernel calls"] = len(calls)
        row[f"{name} graph breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
    times = _in_turns(programs, next(iter(given.values())))
    row |= {f"{name} us": round(1e6 * min(found)) for name, found in times.items()}
    for name in OURS:
        pairs = zip(times["inductor"], times[name], strict=True)
        row[f"{name} speed"] = statistics.median(theirs / ours for theirs, ours in pairs)
    return row


def _in_turns(programs: dict[str, Any], batch: dict[str, Any]) -> dict[str, list[float]]:
    """Processor seconds of a call, the least of each round. A round takes the programs in turns:
    for one program they differ by half between processes, and from one second to the next."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for at in range(ROUNDS):
        names = list(programs)
        for name in names[at % len(names) :] + names[: at % len(names)]:
            times[name].append(min(_seconds(batch, programs[name]) for _ in range(5)))
    return times


def _seconds(batch: dict[str, Any], program: Any) -> float:
    started = time.process_time()
    difference(None, batch, None, program)
    return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="a regular expression on names")
    parser.add_argument("--seed", type=int, default=0, help="of configurations and weights")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each")
    parser.add_argument("--out", type=Path, help="append JSON lines here")
    options = parser.parse_args()
    tasks: list[torch_children.Task] = [
        (name, tried, (name, options.seed, not options.no_compile))
        for name in CLASSES if re.search(options.only, name)
    ]  # fmt: skip
    rows = torch_children.report(torch_children.run_all(tasks, options.limit), options.out)
    for name in OURS:
        speeds = [row[f"{name} speed"] for row in rows if f"{name} speed" in row]
        if speeds:
            mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
            print(f"{name}, over inductor's speed: mean {mean:.2f}, least {min(speeds):.2f}")
    return 0 if {row["status"] for row in rows} <= {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
