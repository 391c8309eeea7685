"""The base class of the views: the arrays of a trace, the selection, and the front end."""

from __future__ import annotations

import logging
import os
from typing import Any, ClassVar

import anywidget
import traitlets

from prosect import frontend, page
from prosect.errors import ProsectError
from prosect.trace import Trace
from prosect.views import payload
from prosect.views.arrays import encode, pack
from prosect.views.payload import Array, Table, kept_in_page, kinds_shown, sent_later

PLACE = ("layer", "head", "target", "source", "hovered", "kind", "theme")
"""The public traits of every view: the selection and the theme."""

_CONTENT = ("_view", "_tokens", "_about", "_kinds", "_terms", "_arrays", "_remote")
_log = logging.getLogger(__name__)


class View(anywidget.AnyWidget):
    """A view of one trace.

    Its traits are synchronised with the front end and work with ``observe``, ``traitlets.link`` and
    ``ipywidgets.jslink``. An invalid value raises a ``TraitError``.

    Parameters
    ----------
    trace
        The trace to show.
    **traits
        Initial values of the traits, and ``layout`` of ipywidgets.

    Attributes
    ----------
    layer, head
        Counted from 0; layer −1 is the embeddings, head −1 all heads together.
    target, source
        Positions of the pinned target token and of the pinned source token; −1 for none.
    hovered
        Position of the source token under the pointer; −1 for none. It is shown instead of the
        pinned one. The front end sends it to Python only if it is observed, by
        ``view.observe(f, "hovered")``, ``traitlets.link`` or ``prosect.link``.
    kind
        The kind of map that is shown.
    theme
        "light", "dark", or "auto": that of the notebook or browser.
    """

    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0).tag(sync=True)
    target = traitlets.Int(-1).tag(sync=True)
    source = traitlets.Int(-1).tag(sync=True)
    hovered = traitlets.Int(-1).tag(sync=True)
    kind = traitlets.Unicode("attention").tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)

    _shares_hover = traitlets.Bool(False).tag(sync=True)
    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    _view = traitlets.Unicode().tag(sync=True)
    _tokens = traitlets.List(traitlets.Dict()).tag(sync=True)
    _about = traitlets.Dict().tag(sync=True)
    _kinds = traitlets.List(traitlets.Dict()).tag(sync=True)
    _terms = traitlets.List(traitlets.Dict()).tag(sync=True)
    _arrays = traitlets.Dict().tag(sync=True)
    _data = traitlets.Bytes().tag(sync=True)
    _remote = traitlets.List(traitlets.Unicode()).tag(sync=True)

    name: ClassVar[str]
    places: ClassVar[tuple[str, ...]] = PLACE
    shows: ClassVar[tuple[Table, ...]]

    def __init__(self, trace: Trace, **traits: Any) -> None:
        if not isinstance(trace, Trace):
            raise ProsectError(
                f"trace must be a Trace, got {type(trace).__name__}: "
                "make one with lens.trace(text)."
            )
        unknown = sorted(set(traits) - {*self.places, "layout"})
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no argument {unknown[0]!r}: "
                f"choose from {', '.join(self.places)}, layout."
            )
        self._trace = trace
        self._table = {array.name: array for table in self.shows for array in table(trace)}
        later = sent_later(trace, self._table.values())
        manifest, data = pack(
            {name: array.compute() for name, array in self._table.items() if name not in later}
        )
        super().__init__(
            _esm=frontend.source("widget.js"),
            _css=frontend.source("widget.css"),
            _view=self.name,
            _tokens=_tokens_of(trace),
            _about=_about(trace),
            _kinds=kinds_shown(trace),
            _terms=[{"name": t, "label": t.replace("_", "-")} for t in trace.anatomy.terms],
            _arrays=manifest,
            _data=data,
            _remote=later,
            **traits,
        )
        self.on_msg(self._answer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._trace!r})"

    def observe(self, handler: Any, names: Any = traitlets.All, type: Any = "change") -> None:
        """Call a function when traits change, as ``traitlets`` documents it.

        Once ``hovered`` is observed, by its name or with all traits, the front end sends it.
        """
        super().observe(handler, names, type)
        observed = [names] if names is traitlets.All or isinstance(names, str) else names
        if traitlets.All in observed or "hovered" in observed:
            self._shares_hover = True

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the view as one HTML file that needs no kernel and no network.

        Missing folders are made, and ~ is the home folder. The page opens with the current selection.
        The file contains the arrays of that selection, and every other kind of map or search that is
        already computed or within the limits of time and size. For long texts, call
        ``trace.map(kind)`` or ``trace.identify(...)`` first for those that the page should contain.
        """
        kinds = kept_in_page(self._trace, self.kind)

        def kept(array: Array) -> bool:
            if array.kind is not None:
                return array.kind.name in kinds
            return self._is_open(array) or array.cost() <= payload.MAX_PAGE_FLOPS

        remote = [name for name in self._remote if kept(self._table[name])]
        state = {name: getattr(self, name) for name in (*self.places, *_CONTENT)}
        state["hovered"] = -1  # no pointer is on the page when it opens
        state["_kinds"] = [kind for kind in self._kinds if kind["name"] in kinds]
        state["_remote"] = remote
        page.write(
            path,
            title=f"{self._trace.texts[0]} – prosect",
            state=state,
            data=self._data,
            remote={name: encode(self._table[name].compute()) for name in remote},
        )

    @traitlets.validate("layer", "head", "target", "source", "hovered")
    def _within_the_trace(self, proposal: Any) -> int:
        name, value = proposal.trait.name, proposal.value
        about = _about(self._trace)
        end = {"layer": about["layers"], "head": about["heads"]}.get(name, about["tokens"])
        if not -1 <= value < end:
            raise traitlets.TraitError(f"{name} must be from -1 to {end - 1}, got {value}.")
        return value

    @traitlets.validate("kind")
    def _known_kind(self, proposal: Any) -> str:
        if proposal.value not in self._trace.kinds:
            known = ", ".join(self._trace.kinds)
            raise traitlets.TraitError(f"kind must be one of {known}, got {proposal.value!r}.")
        return proposal.value

    def _is_open(self, array: Array) -> bool:
        """Whether an array that is not a map is part of the current selection."""
        return False

    def _check_cost(self, array: Array) -> None:
        """Refuse an array that takes too long; the message says what to run instead."""
        if array.cost() > payload.MAX_ANSWER_FLOPS:
            raise ProsectError(
                f"{array.hint} takes long for {len(self._trace.tokens)} tokens: "
                f"run {array.call} in a cell, then open it here."
            )

    def _answer(self, _: object, content: dict[str, Any], buffers: object) -> None:
        """Send an array that the front end asked for; an error goes to reader and log."""
        if not isinstance(content, dict) or "request" not in content:
            return
        name = content.get("array")
        reply = {"reply": content["request"], "array": name}
        try:
            if not isinstance(name, str) or name not in self._table:
                raise ProsectError(f"This view has no array {name!r}.")
            self._check_cost(self._table[name])
            self.send({**reply, "working": True})
            spec, data = encode(self._table[name].compute())
        except Exception as error:  # whatever went wrong, the reader waits for an answer
            _log.exception("prosect could not send %r", name)
            known = isinstance(error, ProsectError)
            sentence = str(error) if known else f"{type(error).__name__}: {error}"
            self.send({**reply, "error": sentence})
        else:
            self.send({**reply, "spec": spec}, [data])


def _tokens_of(trace: Trace) -> list[dict[str, Any]]:
    words = [token.word for token in trace.tokens]
    return [
        {
            "label": token.label,
            "text": token.text,
            "id": token.id,
            "word": -1 if token.word is None else token.word,
            "special": token.special,
            "continues": token.word is not None
            and position > 0
            and words[position - 1] == token.word,
        }
        for position, token in enumerate(trace.tokens)
    ]


def _about(trace: Trace) -> dict[str, Any]:
    error, dtype = trace.terms().error, trace.run.dtype
    used = str(trace.hidden.dtype).removeprefix("torch.")
    own = str(dtype).removeprefix("torch.")
    return {
        "model": trace.lens.name,
        "layers": len(trace.anatomy.blocks),
        "heads": trace.anatomy.heads,
        "tokens": len(trace.tokens),
        "words": trace.anatomy.words.num_embeddings,
        "dtype": own if own == used else f"{own}, analysed in {used}",
        "certificate": error,
        "causal": trace.anatomy.causal,
    }
