"""Where the rows of an hour are: its extents with zone maps, its second index, its chains.

Imports the layout, columns and files. Begin with `extents`, then `second_index`.
"""
