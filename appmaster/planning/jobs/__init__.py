"""A job as a whole: its next model, how far it is, what people ask of it. Pure."""
