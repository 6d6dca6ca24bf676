"""What rows say: tables, the paper's claims, and the official figures beside ours."""
