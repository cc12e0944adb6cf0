"""Forms of English words that no stemmer joins: "bought" and "buy", "children" and "child". PURE.

A question says "did we choose" where the note says "we chose". Of words that have another meaning in one of their
forms (saw, rose, wound, lay) that form is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_GROUPS: Final = """
become became|begin began begun|bend bent|bite bit bitten|blow blew blown|break broke broken|bring brought|build built
buy bought|catch caught|choose chose chosen|come came|deal dealt|dig dug|draw drew drawn|drink drank drunk
drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought|find found|fly flew flown
forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten|give gave given|go went gone
grow grew grown|hang hung|hear heard|hide hid hidden|hold held|keep kept|know knew known|lead led|leave left|lend lent
lose lost|make made|mean meant|meet met|pay paid|ride rode ridden|rise risen|run ran|say said|see seen|seek sought
sell sold|send sent|shake shook shaken|shoot shot|show shown|shrink shrank shrunk|sing sang sung|sink sank sunk|sit sat
sleep slept|speak spoke spoken|spend spent|spin spun|stand stood|steal stole stolen|stick stuck|strike struck
swear swore sworn|sweep swept|swim swam swum|swing swung|take took taken|teach taught|tear tore torn|tell told
think thought|throw threw thrown|understand understood|wake woke woken|wear wore worn|win won|write wrote written
child children|foot feet|man men|woman women|person people|mouse mice|tooth teeth|life lives|wife wives
index indices|matrix matrices|criterion criteria|analysis analyses|hypothesis hypotheses
"""
_FORMS: Final = {
    word: group for group in (tuple(g.split()) for g in _GROUPS.replace("\n", "|").split("|")) for word in group
}
_ENDINGS: Final = ("ing", "s")


def base(word: str) -> str:
    """Return the first form of a word in lower case, itself where it has no other.

    >>> base("chosen"), base("choose"), base("cache")
    ('choose', 'choose', 'cache')
    """
    group = _FORMS.get(word)
    return group[0] if group else word


def with_forms(terms: Sequence[str]) -> list[str]:
    """Return terms, and behind them the other forms of those that have some.

    >>> with_forms(["database", "chose"]), with_forms(["buying", "port"])
    (['database', 'chose', 'choose', 'chosen'], ['buying', 'port', 'buy', 'bought'])
    """
    found = dict.fromkeys(terms)
    for term in terms:
        stripped = (term.removesuffix(ending) for ending in ("", *_ENDINGS))
        found |= dict.fromkeys(next((_FORMS[s] for s in stripped if s in _FORMS), ()))
    return list(found)
