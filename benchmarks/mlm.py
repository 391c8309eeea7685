"""Predict tokens from every subset of the terms, with weights that are installed as packages.

    python benchmarks/mlm.py [rxnmapper] [antiberty] [minilm] [smollm2] [--texts FILE]

Each model reads its own kind of text: reactions and antibodies are generated here, the English
sentences are read from the file, one per line. The output is the accuracy by subset of the model's
own head and of learned heads, their spread over seeds, the standard error with texts as independent
draws, and the computing time.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from typing_extensions import Unpack

from prosect import corpus
from prosect.corpus import MlmResult, Options

SEEDS = (0, 1, 2, 3, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["rxnmapper", "antiberty"])
    parser.add_argument("--texts", type=Path, help="English text, one sentence per line")
    parser.add_argument("--checkpoint", type=Path, help="a folder for finished shards")
    parser.add_argument("--save", type=Path, help="a folder for the results and figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    options: Options = {"checkpoint": arguments.checkpoint, "progress": True}
    for name in arguments.models:
        if name in ("minilm", "smollm2") and arguments.texts is None:
            parser.error(f"{name} needs --texts, a file of English sentences")
        result = {
            "rxnmapper": lambda: on_reactions(**options),
            "antiberty": lambda: on_antibodies(**options),
            "minilm": lambda: of_minilm(sentences(arguments.texts, 1000), **options),
            "smollm2": lambda: on_next_tokens(sentences(arguments.texts, 100), **options),
        }[name]()
        report(result)
        if arguments.save is not None:
            arguments.save.mkdir(parents=True, exist_ok=True)
            result.save(arguments.save / f"mlm-{name}.json")
            result.figure().savefig(arguments.save / f"mlm-{name}.png", dpi=150)


def report(result: MlmResult) -> None:
    ((name, objective),) = result.objective.items()
    print(f"\n{result.about}; {objective}, {result.about.seconds:.0f} s")
    table = result.to_frame().drop(columns="model").set_index("subset")
    print((100 * table).round(1).to_string())
    singles = {subset: list(table.index).index(subset) for subset in ("h", "f", "all")}
    for head, matrix in (
        ("own", result.default_test_agreement),
        ("learned", result.learned_agreement),
    ):
        if name in matrix:
            pairs = (("h", "f"), ("h", "all"), ("f", "all"))
            values = [f"{a}–{b} {100 * matrix[name][singles[a], singles[b]]:.0f}" for a, b in pairs]
            print(f"agreement, {head} head: {', '.join(values)}")


# --- the experiments ----------------------------------------------------------------------------


def on_reactions(count: int = 600, **options: Unpack[Options]) -> MlmResult:
    """RXNMapper: a masked model of chemical reactions, with a head."""
    return corpus.mlm("rxnmapper", reactions(count), seeds=SEEDS, **options)


def on_antibodies(count: int = 600, **options: Unpack[Options]) -> MlmResult:
    """AntiBERTy: a masked model of antibodies, with a head."""
    return corpus.mlm("antiberty", antibodies(count), seeds=SEEDS, **options)


def of_minilm(texts: list[str], **options: Unpack[Options]) -> MlmResult:
    """MiniLM, which has no head: learned heads only."""
    return corpus.mlm("minilm", texts, heads=["learned"], seeds=SEEDS, **options)


def on_next_tokens(texts: list[str], **options: Unpack[Options]) -> MlmResult:
    """SmolLM2: every next token, as a causal model needs no masking."""
    masking = corpus.Masking(share=1.0)
    return corpus.mlm("smollm2", texts, masking=masking, seeds=SEEDS, **options)


def sentences(path: Path, count: int) -> list[str]:
    """Evenly spaced sentences of the file."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return lines[:: max(1, len(lines) // count)][:count]


# --- reactions ----------------------------------------------------------------------------------

CHAINS = {
    **{
        chain: chain for chain in ("C", "CC", "CCC", "CCCC", "CCCCCC", "CC(C)C", "C1CC1", "C1CCCC1")
    },
    **{"C(C)C": "CC(C)", "C(C)(C)C": "CC(C)(C)", "CCOC": "COCC"},
}
"""Chains as written to the right of the atom that they are bound to, and to the left of it."""
SUBSTITUENTS = (
    "",
    "",
    "C",
    "CC",
    "OC",
    "F",
    "Cl",
    "Br",
    "C(F)(F)F",
    "C#N",
    "[N+](=O)[O-]",
    "N(C)C",
)
RINGS = ("c1ccc{}cc1", "c1cccc{}c1", "c1ccnc{}c1")
BASES = ("CCN(CC)CC", "O=C([O-])[O-].[K+].[K+]", "CCN(C(C)C)C(C)C", "[Na+].[OH-]", "c1ccncc1")
SOLVENTS = ("ClCCl", "CN(C)C=O", "C1CCOC1", "CC#N", "CCO", "O", "Cc1ccccc1", "C1COCCO1")
ACIDIC = ("O=S(=O)(O)O", "C(=NC1CCCCC1)=NC1CCCCC1", "O=S(Cl)Cl")
REDUCING = ("[H][H].[Pd].CO", "[Cl-].[Fe].[NH4+].CCO", "Cl.[Sn].CCO")


def reactions(count: int, seed: int = 0) -> list[str]:
    """Textbook reactions as SMILES, with random groups and solvents."""
    draw = random.Random(seed)
    kinds = (ester, amide, ether, thioether, coupling, reduction, amination, hydrolysis)
    generated = []
    for _ in range(count):
        reactants, product = draw.choice(kinds)(draw)
        draw.shuffle(reactants)
        generated.append(f"{'.'.join(reactants)}>>{product}")
    return generated


def ring(draw: random.Random) -> str:
    """An aromatic ring, written to the right of its bond."""
    substituent = draw.choice(SUBSTITUENTS)
    return draw.choice(RINGS).format(f"({substituent})" if substituent else "")


def group(draw: random.Random) -> str:
    """A chain, a ring, or a ring at the end of a chain, written to the right of its bond."""
    if draw.random() < 0.4:
        return draw.choice(list(CHAINS))
    return draw.choice(("", "", "C", "CC")) + ring(draw)


def chain(draw: random.Random) -> str:
    """A chain, written to the left of its bond."""
    return draw.choice(list(CHAINS.values()))


def ester(draw: random.Random) -> tuple[list[str], str]:
    acid, alcohol = group(draw), chain(draw)
    return [f"O=C(O){acid}", f"{alcohol}O", draw.choice(ACIDIC)], f"{alcohol}OC(=O){acid}"


def amide(draw: random.Random) -> tuple[list[str], str]:
    acid, amine = group(draw), chain(draw)
    start = draw.choice(("O=C(O)", "O=C(Cl)")) + acid
    around = [draw.choice(BASES), draw.choice(SOLVENTS)]
    return [start, f"{amine}N", *around], f"{amine}NC(=O){acid}"


def ether(draw: random.Random) -> tuple[list[str], str]:
    phenol, halide = ring(draw), chain(draw)
    around = [draw.choice(BASES), draw.choice(SOLVENTS)]
    leaving = draw.choice(("Br", "I", "Cl"))
    return [f"O{phenol}", f"{halide}{leaving}", *around], f"{halide}O{phenol}"


def thioether(draw: random.Random) -> tuple[list[str], str]:
    fluoride, thiol = ring(draw), chain(draw)
    around = [draw.choice(BASES), draw.choice(SOLVENTS)]
    return [f"F{fluoride}", f"{thiol}S", *around], f"{thiol}S{fluoride}"


def coupling(draw: random.Random) -> tuple[list[str], str]:
    bromide, boronic = ring(draw), ring(draw)
    joined = f"{bromide[:2]}(-{boronic.replace('1', '2')}){bromide[2:]}"
    return [f"Br{bromide}", f"OB(O){boronic}", "[Pd]", BASES[1], "C1COCCO1", "O"], joined


def reduction(draw: random.Random) -> tuple[list[str], str]:
    aniline = ring(draw)
    return [f"O=[N+]([O-]){aniline}", draw.choice(REDUCING)], f"N{aniline}"


def amination(draw: random.Random) -> tuple[list[str], str]:
    aldehyde, amine = ring(draw), chain(draw)
    around = ["[BH4-].[Na+]", draw.choice(("CO", "ClCCl"))]
    return [f"O=C{aldehyde}", f"{amine}N", *around], f"{amine}NC{aldehyde}"


def hydrolysis(draw: random.Random) -> tuple[list[str], str]:
    acid, leaving = group(draw), draw.choice(("C", "CC"))
    around = ["[Na+].[OH-]", draw.choice(("O", "CO", "C1CCOC1"))]
    return [f"{leaving}OC(=O){acid}", *around], f"O=C(O){acid}"


# --- antibodies ---------------------------------------------------------------------------------

HEAVY = (
    (
        "EVQLVESGGGLVQPGGSLRLSCAAS",
        "WVRQAPGKGLEWVS",
        "RFTISRDNSKNTLYLQMNSLRAEDTAVYYCAR",
        "WGQGTLVTVSS",
    ),
    (
        "QVQLVQSGAEVKKPGASVKVSCKAS",
        "WVRQAPGQGLEWMG",
        "RVTMTRDTSTSTVYMELSSLRSEDTAVYYCAR",
        "WGQGTTVTVSS",
    ),
    (
        "QVQLQESGPGLVKPSETLSLTCTVS",
        "WIRQPPGKGLEWIG",
        "RVTISVDTSKNQFSLKLSSVTAADTAVYYCAR",
        "WGRGTLVTVSS",
    ),
)
LIGHT = (
    (
        "DIQMTQSPSSLSASVGDRVTITC",
        "WYQQKPGKAPKLLIY",
        "GVPSRFSGSGSGTDFTLTISSLQPEDFATYYC",
        "FGQGTKVEIK",
    ),
    (
        "EIVLTQSPGTLSLSPGERATLSC",
        "WYQQKPGQAPRLLIY",
        "GIPDRFSGSGSGTDFTLTISRLEPEDFAVYYC",
        "FGGGTKVEIK",
    ),
    ("QSVLTQPPSVSGAPGQRVTISC", "WYQQLPGTAPKLLIY", "GVPDRFSGSKSGTSASLAITGLQAEDEADYYC", "FGGGTKLTVL"),
)
"""The frameworks of common heavy and light chains, between which the loops differ."""
LOOPS = {
    "heavy": ("GFTFSxYxMx", "xIxxxGxxTxYADSVKG", (6, 16), "xDY"),
    "light": ("RASQxIxxxLx", "xASxLxS", (5, 8), "xPxT"),
}
"""The first two loops with x for any residue, the range of lengths of the third, and its end."""
RESIDUES = "AAADDEFGGGGHIKLNPQRRSSSSTTVWYYYY"
"""The residues of loops, in proportion to their frequency: glycine, serine and tyrosine dominate."""
SIMILAR = {
    "K": "R",
    "R": "K",
    "S": "T",
    "T": "S",
    "V": "I",
    "I": "V",
    "L": "M",
    "Q": "E",
    "A": "G",
}
"""Common mutations in frameworks."""


def antibodies(count: int, seed: int = 0) -> list[str]:
    """Variable regions of generated antibodies: known frameworks, random loops and mutations."""
    draw = random.Random(seed)
    generated = []
    for _ in range(count):
        kind, frameworks = draw.choice((("heavy", HEAVY), ("light", LIGHT)))
        first, second, (least, most), end = LOOPS[kind]
        third = "x" * draw.randint(least, most) + end
        parts = [mutated(part, draw) for part in draw.choice(frameworks)]
        loops = [filled(loop, draw) for loop in (first, second, third)]
        generated.append(
            "".join(part + loop for part, loop in zip(parts, [*loops, ""], strict=True))
        )
    return generated


def mutated(framework: str, draw: random.Random) -> str:
    return "".join(SIMILAR.get(x, x) if draw.random() < 0.06 else x for x in framework)


def filled(loop: str, draw: random.Random) -> str:
    return "".join(draw.choice(RESIDUES) if x == "x" else x for x in loop)


if __name__ == "__main__":
    main()
