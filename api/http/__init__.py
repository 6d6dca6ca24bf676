"""What is HTTP here: requests, pages, caching, problems, and the document of it all."""
