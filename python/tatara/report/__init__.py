"""The pages of `tatara.explain`, and the history that they show. Private: tatara itself has the names for users."""
