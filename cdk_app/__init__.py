"""The deployment: reads configuration and files, writes templates. It never calls AWS and never imports handlers."""
