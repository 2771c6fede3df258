"""HTTP as the service uses it: addresses, negotiation, messages, continuation tokens, the envelope of a batch."""
