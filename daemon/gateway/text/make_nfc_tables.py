#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes nfc_tables.inc from Python's own Unicode database. Run: make_nfc_tables.py > nfc_tables.inc"""
import unicodedata as u


def rows(items):
    line = ""
    for item in items:
        if len(line) + len(item) > 119:
            print(line)
            line = ""
        line += item
    print(line)


def main():
    pairs, classes = [], []
    for code in range(0x110000):
        text = u.decomposition(chr(code))
        if text and not text.startswith("<"):
            parts = [int(p, 16) for p in text.split()] + [0]
            first, second = parts[0], parts[1]
            back = second and u.normalize("NFC", chr(first) + chr(second)) == chr(code)
            pairs.append("{0x%X,0x%X,0x%X,%d}," % (code, first, second, bool(back)))
        cls = u.combining(chr(code))
        if cls:
            if classes and classes[-1][1] == code - 1 and classes[-1][2] == cls:
                classes[-1][1] = code
            else:
                classes.append([code, code, cls])
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by make_nfc_tables.py from Unicode %s. Do not edit." % u.unidata_version)
    print("// {code, first, second or 0, whether the pair composes back}, sorted by code.")
    print("constexpr Decomposition kDecompositions[] = {")
    rows(pairs)
    print("};")
    print("// {first code, last code, canonical combining class}, sorted; all others have class 0.")
    print("constexpr ClassRange kClassRanges[] = {")
    rows(["{0x%X,0x%X,%d}," % tuple(c) for c in classes])
    print("};")


main()
