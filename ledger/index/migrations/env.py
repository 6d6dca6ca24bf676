"""What Alembic runs: the steps, in the transaction of whoever asks for them."""

from __future__ import annotations

from alembic import context

from ledger.index.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
