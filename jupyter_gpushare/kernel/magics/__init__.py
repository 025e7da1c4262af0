"""`%gpu` and `%%gpu`.

line_magic  the magic: runs a verb, or a cell with a share
verbs       what each verb shows
parsers     the options of each verb, and its `--help`
usage       the overview of all verbs
"""
