"""Coverage-guided inputs for one parser: `python tests/stress/fuzz/guided.py PARSER CORPUS FOUND INPUTS SEED`.

It runs atheris in its own process, because libFuzzer ends the process that it runs in. New inputs stay in CORPUS; an
input whose error is not one of the parser's own goes to FOUND. The last line on standard output has the memory in KiB
and the open descriptors, after the first tenth of the inputs and at the end.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import atheris

with atheris.instrument_imports(include=["tablestone"]):
    from stress.fuzz.parsers import PARSERS

from stress.fuzz.parser import call
from stress.fuzz.resources import Resources, of_this_process

SECONDS_MAX = 20
"""Seconds after which one input counts as a hang, on a busy machine."""


def _escaped(word: bytes) -> str:
    """A word as libFuzzer's dictionary spells it."""
    return "".join(f"\\x{byte:02x}" for byte in word)


def main(name: str, corpus: str, artifacts: str, inputs: int, seed: int) -> None:
    """Run libFuzzer for so many inputs. Does not return."""
    parser = PARSERS[name]
    for number, content in enumerate(parser.seeds):
        (Path(corpus) / f"seed-{number}").write_bytes(content)
    words = Path(artifacts) / "words"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in parser.words))
    done = 0
    early: Resources | None = None

    def one(content: bytes) -> None:
        nonlocal done, early
        done += 1
        if done == inputs // 10:
            early = of_this_process()
        elif done == inputs and early is not None:
            print(f"resources {early} {of_this_process()}", flush=True)
        call(parser, content)

    atheris.Setup(
        [
            sys.argv[0],
            corpus,
            f"-runs={inputs}",
            f"-seed={seed % 2**31 or 1}",
            f"-dict={words}",
            f"-artifact_prefix={artifacts}/",
            f"-timeout={SECONDS_MAX}",
            "-max_len=4096",
            "-verbosity=0",
        ],
        one,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
