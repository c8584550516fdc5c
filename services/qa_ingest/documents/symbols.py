"""Characters of the symbol fonts that people tick boxes with, as Unicode."""

from __future__ import annotations

_WINGDINGS = {
    0x6C: "●", 0x6E: "■", 0x6F: "☐", 0x71: "❑", 0x72: "❒", 0x75: "◆", 0x76: "❖", 0x78: "☒", 0xA7: "▪", 0xA8: "☐",
    0xD8: "➢", 0xE0: "→", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
}  # fmt: skip
_WINGDINGS_2 = {0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0xA3: "☐", 0x97: "●"}
_SYMBOL = {0xB7: "•", 0xAE: "→", 0xB3: "≥", 0xA3: "≤", 0xB9: "≠", 0xB1: "±", 0xA5: "∞", 0xD6: "√", 0x6D: "μ"}
_FONTS = {"wingdings": _WINGDINGS, "wingdings 2": _WINGDINGS_2, "symbol": _SYMBOL}


def symbol(font: str, code: str) -> str:
    """The character that `code` (hexadecimal) is in a symbol font; U+FFFD where nobody knows."""
    try:
        number = int(code, 16)
    except ValueError:
        return "\ufffd"
    known = _FONTS.get(font.strip().casefold())
    if known is not None:
        return known.get(number & 0xFF, "\ufffd")
    private = 0xE000 <= number <= 0xF8FF
    low = number & 0xFF
    if private:
        return _WINGDINGS.get(low, "\ufffd")
    return chr(number) if 0x20 <= number <= 0xFFFD and not 0xD800 <= number <= 0xDFFF else "\ufffd"
