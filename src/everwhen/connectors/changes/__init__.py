"""Logs of other systems as inputs: tables that change, rows that are added, relations.

A row of a table that changes lives from the change that made it until the next one of its key.
"""
