"""The toy tokenizer: a fixed vocabulary, reversible for every text, lone surrogates included.

Ids: 0-255 single bytes; 256-271 special tokens; then " a".." z", pairs of small letters, " 0".." 999", and last the words
of vocabulary.py in four spellings each (plain, with a space, capitalised, capitalised with a space). `decode(encode(t)) == t`
for every t; the end token decodes to nothing, as SGLang's `skip_special_tokens` has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import ascii_lowercase

from backend.simulator.vocabulary import WORDS

THINK, END_THINK, END, BLANK_LINE, START = 256, 257, 258, 259, 260
TOOL_CALL, END_TOOL_CALL, BOXED, PARAGRAPH = 261, 262, 263, 264
PARAGRAPH_CHARS = 1024
"""Length of the one long piece: an answer of megabytes without a million tokens."""
_SPECIAL = {
    THINK: "<think>",
    END_THINK: "</think>",
    END: "<|im_end|>",
    BLANK_LINE: "\n\n",
    START: "<|im_start|>",
    TOOL_CALL: "<tool_call>",
    END_TOOL_CALL: "</tool_call>",
    BOXED: "\\boxed{",
    PARAGRAPH: (" ".join(WORDS) * 2)[:PARAGRAPH_CHARS],
}
NEWLINE = ord("\n")
_FIRST_PIECE = 272


def _make_pieces() -> list[str]:
    pieces = [f" {letter}" for letter in ascii_lowercase]
    pieces += [left + right for left in ascii_lowercase for right in ascii_lowercase]
    pieces += [f" {number}" for number in range(1000)]
    for word in WORDS:
        capital = word[0].upper() + word[1:]
        pieces += [word, f" {word}", capital, f" {capital}"]
    return list(dict.fromkeys(pieces))


_PIECES = _make_pieces()
_ID_OF_PIECE = {piece: _FIRST_PIECE + index for index, piece in enumerate(_PIECES)}
_ID_OF_PIECE.update({text: token for token, text in _SPECIAL.items()})
_BYTES_OF_ID: list[bytes] = [bytes([value]) for value in range(256)]
_BYTES_OF_ID += [_SPECIAL.get(token, "").encode() for token in range(256, _FIRST_PIECE)]
_BYTES_OF_ID += [piece.encode() for piece in _PIECES]
_BYTES_OF_ID[END] = b""

VOCABULARY_SIZE = len(_BYTES_OF_ID)

_SPLIT = re.compile(r"</?think>|<\|im_(?:start|end)\|>|</?tool_call>|\\boxed\{|\n\n| ?[A-Za-z]+| ?[0-9]{1,3}|.", re.DOTALL)


def number(value: int) -> int:
    """The token of a space and a number below 1000."""
    return _ID_OF_PIECE[f" {value}"]


def encode(text: str) -> list[int]:
    """Token ids of a text: known pieces, else pairs of letters, else bytes."""
    ids: list[int] = []
    known = _ID_OF_PIECE
    for piece in _SPLIT.findall(text):
        token = known.get(piece)
        if token is not None:
            ids.append(token)
        else:
            _encode_unknown(piece, ids)
    return ids


def _encode_unknown(piece: str, ids: list[int]) -> None:
    position = 0
    while position < len(piece):
        token = _ID_OF_PIECE.get(piece[position : position + 2])
        if token is not None and token >= _FIRST_PIECE:
            ids.append(token)
            position += 2
        else:
            ids.extend(piece[position].encode("utf-8", "surrogatepass"))
            position += 1


def decode(ids: Iterable[int]) -> str:
    """The text of token ids; an incomplete last character becomes U+FFFD."""
    table = _BYTES_OF_ID
    data = b"".join([table[token] for token in ids])
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _decode_leniently(data)


def _decode_leniently(data: bytes) -> str:
    """Lone surrogates are kept; bytes that are no character at all become U+FFFD."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        head = data[: error.start].decode("utf-8", "surrogatepass")
        return head + "\ufffd" + (_decode_leniently(data[error.end :]) if error.end < len(data) else "")
