"""What a person looks at after a simulation: the story as rows, the workflow as a picture, one HTML page."""
