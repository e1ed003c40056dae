"""The attacks: labels and images from updates, each registered with what it needs."""
