"""The data tools: clients of any Azure Tables endpoint, over the SDK. Never imports server, tables or engines."""
