"""How the rounds of an audit are checked: here or in processes, in order, watched, cancelled."""
