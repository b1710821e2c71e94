# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""transformers with `attn_implementation="neptune"` gives what its eager mode gives."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import neptune_mlir.torch as door  # noqa: E402
from neptune_mlir.errors import UsageError  # noqa: E402
from neptune_mlir.targets.roofline import Roof  # noqa: E402
from neptune_mlir.torch.transformers import attention_forward  # noqa: E402

SIZES = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
T5 = {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4,
      "pad_token_id": 0, "decoder_start_token_id": 0}  # fmt: skip
MODELS = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "Bert": ("BertModel", "BertConfig", SIZES),
    "Gemma2": ("Gemma2ForCausalLM", "Gemma2Config",
               {**GROUPED, "head_dim": 8, "sliding_window": 4, "attn_logit_softcapping": 2.0}),
    "Mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 4}),
    "GptOss": ("GptOssForCausalLM", "GptOssConfig",
               {**GROUPED, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "T5": ("T5ForConditionalGeneration", "T5Config", T5),
}  # fmt: skip
SOON = ("Llama", "GptOss")


@pytest.fixture
def registered(interpreted, monkeypatch):
    monkeypatch.setattr(Roof, "is_worth_a_call", lambda *_: True)
    door.register()
    yield interpreted
    door.unregister()
    assert "neptune" not in transformers.AttentionInterface()


def model_of(name):
    made, config, options = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, made)(getattr(transformers, config)(**options)).eval()
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("sinks"):
            torch.nn.init.normal_(parameter)
    return model


def padded(name):
    """Two sequences, the first with five tokens of padding: on the left, for BERT on the right."""
    ids = torch.randint(3, 50, (2, 11), generator=torch.Generator().manual_seed(1))
    seen = torch.ones(2, 11, dtype=torch.long)
    seen[0, :5] = 0
    given = {"input_ids": ids, "attention_mask": seen.flip(1) if name == "Bert" else seen}
    if name == "T5":
        given["decoder_input_ids"] = ids[:, :6]
    return given


@pytest.mark.parametrize(
    "name", [n if n in SOON else pytest.param(n, marks=pytest.mark.nightly) for n in MODELS]
)
def test_padded_batches_and_generation(name, registered):
    model, given = model_of(name), padded(name)
    rows = slice(None) if name == "T5" else given["attention_mask"].bool()

    def run(how):
        model.set_attn_implementation(how)
        with torch.no_grad():
            return model(**given)[0][rows]

    wanted = run("eager")
    torch.testing.assert_close(run("neptune"), wanted, atol=2e-6, rtol=1e-5)
    assert registered, "no kernel was asked for"
    if hasattr(model, "generate"):
        ask = {n: x for n, x in given.items() if n != "decoder_input_ids"}
        found = model.generate(**ask, max_new_tokens=4, do_sample=False)
        model.set_attn_implementation("eager")
        assert torch.equal(found, model.generate(**ask, max_new_tokens=4, do_sample=False))


def test_what_has_no_kernel_is_refused():
    x = torch.zeros(1, 2, 3, 4)
    with pytest.raises(UsageError, match="dropout"):
        attention_forward(torch.nn.Identity(), x, x, x, None, dropout=0.1)
    with pytest.raises(UsageError, match="paged cache"):
        attention_forward(torch.nn.Identity(), x, x, x, None, cache=object())
