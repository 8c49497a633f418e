"""Why a query is silent (WAITING): what waits, which promise is missing, what is told."""
