"""The data tools: a client of any Azure Tables endpoint through the official SDK. Never imports server, tables or
engines.
"""
