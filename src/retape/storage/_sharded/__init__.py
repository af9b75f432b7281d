"""Arrays that lie on several devices, or of several processes, part by part."""
