# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`neptune completion SHELL`: a script that completes `neptune` and `neptune-opt`.

    source <(neptune completion bash)          in ~/.bashrc
    source <(neptune completion zsh)           in ~/.zshrc, behind compinit
    neptune completion fish | source           in ~/.config/fish/config.fish

The script holds the words of this installation: options, passes (of installed packages as well) and
schedules. What is no option is completed as a file.
"""

from __future__ import annotations

import argparse
import contextlib

from neptune_mlir.errors import UsageError

_BASH = """\
_neptune() {{
  local words='{commands}'
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "${{COMP_WORDS[1]}}" in
{cases}
      *) words='' ;;
    esac
  fi
  _neptune_reply "$words"
}}
_neptune_opt() {{
  _neptune_reply '{passes}'
}}
_neptune_reply() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  COMPREPLY=()
  if [ "$before" = --schedule ]; then
    COMPREPLY=($(compgen -W '{schedules}' -- "$word"))
  elif [ "$word" != = ] && [ "$before" != = ]; then
    COMPREPLY=($(compgen -W "$1" -- "$word"))
  fi
}}
complete -o default -F _neptune neptune
complete -o default -F _neptune_opt neptune-opt
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")


def execute(options: argparse.Namespace) -> int:
    if options.shell == "fish":
        print(_fish())
    else:
        print((_ZSH if options.shell == "zsh" else "") + _bash(), end="")
    return 0


def _commands() -> dict[str, dict[str, str]]:
    """The options of every command, with their help."""
    from neptune_mlir.cli.main import COMMANDS, options_of, parser_of

    return {name: options_of(parser_of(name)) for name in COMMANDS}


def _opt_words() -> dict[str, str]:
    """The options and passes of `neptune-opt`, with what they are."""
    from neptune_mlir.cli.opt_options import make_parser
    from neptune_mlir.pipelines import upstream
    from neptune_mlir.transforms import registry

    words = {f"--{name}": options for name, options in upstream.passes().items()}
    for name in registry.names():
        with contextlib.suppress(UsageError):  # of a broken package: no word
            words[f"--{name}"] = registry.lookup(name).summary
    for name, action in make_parser().options().items():
        words["-" * min(len(name), 2) + name] = action.help or ""
    return words


def _schedules() -> list[str]:
    from neptune_mlir import plugins
    from neptune_mlir.transforms.schedule import library

    return [*library.shipped(), *plugins.entries(plugins.SCHEDULES)]


def _bash() -> str:
    commands = _commands()
    cases = [f"      {name}) words='{' '.join(words)}' ;;" for name, words in commands.items()]
    return _BASH.format(
        commands=" ".join([*commands, "--help", "--version"]),
        cases="\n".join(cases),
        passes=" ".join(_opt_words()),
        schedules=" ".join(_schedules()),
    )


def _fish() -> str:
    from neptune_mlir.cli.main import COMMANDS

    lines = []
    first = "-n __fish_use_subcommand -f"
    for name, summary in COMMANDS.items():
        lines.append(f"complete -c neptune {first} -a {name} -d {_quoted(summary)}")
    for command, words in _commands().items():
        inside = f"-n '__fish_seen_subcommand_from {command}'"
        lines += [f"complete -c neptune {inside} {_flag(w, text)}" for w, text in words.items()]
        if "--schedule" in words:
            listed = _quoted(" ".join(_schedules()))
            lines.append(f"complete -c neptune {inside} -l schedule -x -a {listed}")
    lines += [f"complete -c neptune-opt {_flag(w, text)}" for w, text in _opt_words().items()]
    return "\n".join(lines)


def _flag(word: str, text: str) -> str:
    kind = "-s" if len(word) == 2 else "-l"
    return f"{kind} {word.lstrip('-')} -d {_quoted(text.replace('%%', '%'))}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
