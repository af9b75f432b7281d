"""The record of an eager run: operators, storages, their traits."""
