"""Commands as a family: what a command is, and the arguments and options that several of them share.

A folder of the package offers commands in its module `commands`, an installed package by entry points `xmtc.commands`.
"""
