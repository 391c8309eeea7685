"""Which tokens are predicted and what hides them: shares, reproducibility, what is left alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import prosect
from prosect.corpus.data.masking import Masker, Masking
from prosect.tokens import ordinary_ids
from support.families import TEXTS, random_lens, word_pieces

MANY = [f"{text} {number} ducklings" for text in TEXTS[:3] for number in range(200)]


def test_the_shares_are_those_asked_for() -> None:
    lens = random_lens("bert")
    choose = Masker(lens, Masking())
    mask = lens.tokenizer.mask_token_id
    kinds: Counter[str] = Counter()
    for text in MANY:
        tokens, chosen = lens.tokens(text), choose(text)
        predictable = [t for t in tokens if not t.special and t.id != lens.tokenizer.unk_token_id]
        assert len(chosen.positions) == int(0.15 * len(predictable) + 0.5)
        assert chosen.targets == [tokens[place].id for place in chosen.positions]
        assert set(chosen.replacements) <= set(chosen.positions)
        for place in chosen.positions:
            read = chosen.replacements.get(place)
            kinds["kept" if read is None else "masked" if read == mask else "random"] += 1
    total = sum(kinds.values())
    assert total > 1000
    spread = (0.8 * 0.2 / total) ** 0.5
    for kind, share in (("masked", 0.8), ("random", 0.1), ("kept", 0.1)):
        assert kinds[kind] / total == pytest.approx(share, abs=4 * spread)


def test_every_place_of_a_text_may_be_chosen_and_special_tokens_never() -> None:
    lens = random_lens("roberta")
    text = TEXTS[0]
    found = {
        place for seed in range(300) for place in Masker(lens, Masking(seed=seed))(text).positions
    }
    tokens = lens.tokens(text)
    assert found == {place for place, token in enumerate(tokens) if not token.special}
    assert len(found) == len(tokens) - 2


def test_random_tokens_are_ordinary_ones_drawn_from_the_whole_vocabulary() -> None:
    lens = random_lens("bert")
    tokenizer: Any = lens.tokenizer
    choose = Masker(lens, Masking(share=1.0, masked=0.0, random=1.0))
    drawn = {id for text in MANY for id in choose(text).replacements.values()}
    ordinary = ordinary_ids(tokenizer)
    assert drawn == set(ordinary)
    assert set(ordinary) | {*tokenizer.all_special_ids} == set(tokenizer.get_vocab().values())
    assert not set(ordinary) & {*tokenizer.all_special_ids}


def test_a_choice_depends_on_the_seed_and_the_text_alone() -> None:
    lens = random_lens("bert")
    choose = Masker(lens, Masking())
    first = [choose(text) for text in MANY[:20]]
    again = [Masker(random_lens("bert"), Masking())(text) for text in reversed(MANY[:20])]
    assert again[::-1] == first
    other = [Masker(lens, Masking(seed=1))(text) for text in MANY[:20]]
    spaced = [choose(f" {text.replace(' ', '  ')}\n") for text in MANY[:20]]
    assert spaced == first  # the tokenizer of this model reads them as the same
    assert sum(a.positions != b.positions for a, b in zip(first, other, strict=True)) > 15


def test_a_short_text_has_one_token_chosen() -> None:
    lens = random_lens("bert")
    assert Masker(lens, Masking())("the").positions == [1]


def test_unknown_tokens_are_not_predicted() -> None:
    lens = random_lens("bert")
    tokens = lens.tokens("the 日 bank")
    assert [token.id for token in tokens].count(lens.tokenizer.unk_token_id) == 1
    chosen = Masker(lens, Masking(share=1.0))("the 日 bank")
    assert chosen.targets == [t.id for t in tokens if t.id not in lens.tokenizer.all_special_ids]
    assert Masker(lens, Masking())("日").positions == []


def test_a_causal_model_predicts_from_the_state_before_and_reads_the_text_as_it_is() -> None:
    lens = random_lens("gpt2")
    tokens = lens.tokens(TEXTS[0])
    chosen = Masker(lens, Masking(share=1.0))(TEXTS[0])
    assert chosen.positions == list(range(len(tokens) - 1))
    assert chosen.targets == [token.id for token in tokens[1:]]
    assert chosen.replacements == {}
    assert len(Masker(lens, Masking())(TEXTS[0]).positions) == int(0.15 * (len(tokens) - 1) + 0.5)
    assert Masker(lens, Masking())("a").positions == []  # nothing stands before it


def test_the_first_token_is_predicted_where_one_is_put_before_it() -> None:
    lens = random_lens("opt")
    lens = prosect.Lens(lens.model, random_lens("roberta").tokenizer)
    tokens = lens.tokens("the river")
    assert tokens[0].special
    chosen = Masker(lens, Masking(share=1.0))("the river")
    assert chosen.targets[0] == tokens[1].id
    assert chosen.positions[0] == 0
    assert tokens[-1].special
    assert len(chosen.targets) == len(tokens) - 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.0}, "share must be above 0"),
        ({"share": 1.1}, "share must be above 0 and at most 1, got 1.1"),
        ({"masked": -0.1}, "must be at least 0 and their sum"),
        ({"masked": 0.8, "random": 0.3}, "their sum at most 1, got 0.8 and 0.3"),
        ({"share": float("nan")}, "share must be"),
        ({"share": "3"}, "share must be a number, got '3'"),
        ({"random": None}, "random must be a number, got None"),
        ({"seed": 0.5}, "seed must be an integer, got 0.5"),
        ({"masked": float("nan")}, "must be at least 0 and their sum"),
    ],
)
def test_shares_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(prosect.ProsectError, match=message):
        Masking(**settings)


def test_a_tokenizer_without_a_mask_is_refused_unless_nothing_is_masked() -> None:
    lens = prosect.Lens(random_lens("bert").model, random_lens("gpt2").tokenizer, name="mine")
    with pytest.raises(prosect.UnsupportedModelError, match="tokenizer of mine has no mask token"):
        Masker(lens, Masking())
    chosen = Masker(lens, Masking(masked=0.0, random=0.5))(TEXTS[0])
    assert chosen.positions
    assert word_pieces().mask_token_id not in chosen.replacements.values()
