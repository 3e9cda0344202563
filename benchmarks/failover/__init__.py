"""What failures of replicas cost clients, and what routing over several of them gains."""
