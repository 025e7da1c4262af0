"""Output of this notebook's share.

output       messages under a cell
state_words  the words for the states of a kernel
text         plain text
html         the card and tables in the colours of the front end
charts       memory and share over time, in block characters
"""
