"""Who of the containers is lost, and what each is to be told. Pure."""
