"""Numbers as people write them."""

from __future__ import annotations

from decimal import Decimal

HUNDRED_MILLIONTH = 1e-8
"""Below, a number of a page is 0: no exponent is written."""


def number(value: float) -> str:
    """A number for people: three digits that matter, thousands in full, no exponent.

    Returns:
        Digits, with commas between thousands; no unit; "–" for NaN.

    >>> number(0.012345), number(12.345), number(999.7), number(123456.7), number(0.0000123)
    ('0.0123', '12.3', '1,000', '123,457', '0.0000123')
    """
    if value != value:
        return "–"
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    if abs(value) < HUNDRED_MILLIONTH:
        return "0"
    text = f"{value:.3g}"
    return f"{Decimal(text):f}" if "e" in text else text


def money(value: float, currency: str) -> str:
    """An amount of money for people.

    Args:
        value: The amount; NaN: unknown.
        currency: Its ISO 4217 code.

    Returns:
        Digits as `number` gives them, and the code; "–" alone for NaN.

    >>> money(1234.5, "EUR"), money(0.40486, "USD")
    ('1,234 EUR', '0.405 USD')
    """
    return number(value) if value != value else f"{number(value)} {currency}"


def percent(share: float) -> str:
    """A share in percent for people: two digits that matter.

    Returns:
        Digits; no unit.

    >>> percent(0.0123), percent(0.304), percent(0.999)
    ('1.2', '30', '100')
    """
    return f"{100 * share:.0f}" if abs(share) >= 0.1 else f"{100 * share:.2g}"


def signed(value: float) -> str:
    """A difference, with its sign; 0 has none.

    Returns:
        Digits as `number` gives them.

    >>> signed(0.25), signed(-1234.5), signed(0.0)
    ('+0.25', '-1,234', '0')
    """
    return f"+{number(value)}" if value >= HUNDRED_MILLIONTH else number(value)


def span(value: float, low: float, high: float, *, sign: bool = False) -> str:
    """A value with its interval; the value alone where the interval is a point.

    Args:
        value: The value.
        low: The interval's lower end.
        high: The interval's upper end.
        sign: Whether the numbers are differences.

    Returns:
        Digits and brackets; no unit.

    >>> span(12.34, 9.87, 15.0), span(2.0, 2.0, 2.0, sign=True)
    ('12.3 [9.87, 15]', '+2')
    """
    shown = signed if sign else number
    ends = shown(low), shown(high)
    if ends[0] == ends[1]:
        return shown(value)
    return f"{shown(value)} [{ends[0]}, {ends[1]}]"
