"""Secrets in texts and fields: by the form of the value, and by the name in front of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Ends of names of secrets, in any case; ``key`` alone is left out.
_NAMES = (
    r"(?:pass(?:word|wd|phrase)|[_-]pwd|token|secret|credentials?|authorization|cookies?|signature|webhook(?:_?url)?"
    r"|(?:api|access|secret|private|account|signing|encryption|license|auth)[_-]?keys?|(?-i:_KEY))"
)
#: Words before a secret that are none: ``Authorization: Bearer x``.
_SCHEMES = r"(?:bearer|basic|token|digest|negotiate)"
_VALUE = r"[^\s'\"\\&<]{1,4000}"
#: A name, a mark and a value, in ``named``: assignments, options, JSON, YAML and headers.
_ASSIGNED = (
    rf"(?i:\b[\w.-]{{0,60}}?{_NAMES}\\?['\"]?[ \t]?(?:[=:>]|=>)[ \t]?\\?['\"]?(?:{_SCHEMES} )?"
    rf"|(?<![\w-])--?[\w-]{{0,60}}?{_NAMES}[ \t]+['\"]?(?!-)"
    rf"|\bsshpass -p ?['\"]?|(?<![\w-])(?:-u|--user)[ =](?=[^\s:]{{1,100}}:))"
)
#: The rest of a line is the value of a cookie.
_COOKIE = r"(?i:\b(?:set-)?cookie: ?)(?P<cookie>[^\r\n'\"\\]{1,8000})"
_SHAPES = (
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:(?!-----)[\s\S]){0,20000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?",
    # JSON web tokens, and public keys of OpenSSH, which name a person.
    r"\beyJ[\w-]{8,4000}\.[\w-]{4,8000}(?:\.[\w-]{0,4000})?",
    r"\bAAAA[A-Za-z0-9+/]{40,2000}={0,3}",
    r"\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-|[srp]k_(?:live|test)_|nvapi-|npm_|pypi-|dop_v1_|AIza|ya29\."
    r"|A(?:KIA|SIA))[A-Za-z0-9_-]{12,500}",
    r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,4000}",
    r"(?<=[Bb]asic )(?=[A-Za-z+/]{0,1000}[0-9=])[A-Za-z0-9+/]{8,1000}={0,2}",
    r"(?:(?<=hooks\.slack\.com/services/)|(?<=/api/webhooks/)|(?<=webhook\.office\.com/)|(?<=[?&]sig=))[^\s'\"]{8,1000}",
    r"(?<=://)[^\s/@:]{1,100}(?::[^\s/@]{0,200})?(?=@)",
)
#: In the order in which they are tried; the value of a name is the group ``named`` or ``cookie``.
PATTERNS = (
    rf"(?P<secret>{'|'.join(_SHAPES)})",
    _COOKIE,
    rf"{_ASSIGNED}(?P<named>(?<=['\"])[^'\"\\\r\n]{{1,1000}}(?=\\?['\"])|{_VALUE})",
)
_FIELD = re.compile(rf"(?i).*?{_NAMES}", re.DOTALL)
_OPTION = re.compile(rf"(?i)--?[\w-]*?{_NAMES}|(?:x-)?[\w-]*?{_NAMES}:|{_SCHEMES}")
_SCHEME = re.compile(rf"(?i){_SCHEMES}")


def is_secret_field(field: str) -> bool:
    """Return True if a field or variable of this name holds a secret."""
    return _FIELD.fullmatch(field) is not None


def is_secret_word(words: Sequence[object], at: int) -> bool:
    """Return True if a word of a command line is the value of the option before it: ``["--token", "x"]``."""
    word, before = words[at], words[at - 1] if at else None
    if not isinstance(word, str) or not isinstance(before, str) or _SCHEME.fullmatch(word) or word.startswith("-"):
        return False
    if before in ("-u", "--user", "--proxy-user"):
        return ":" in word
    return _OPTION.fullmatch(before) is not None or (before == "-p" and str(words[at - 2]).endswith("sshpass"))
