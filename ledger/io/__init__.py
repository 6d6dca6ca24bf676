"""Files, processes and messages: bounded reads, durable writes, retries."""
