"""The MCP server: the Q&A library as tools for agents."""
