"""Why a query is silent."""
