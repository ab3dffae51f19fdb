"""How events change the view. Other packages use only `apply`. Pure."""
