"""A look into the S3 server that the fixture ``server`` starts."""


def objects(server: str, prefix: str) -> dict[str, bytes]:
    import s3fs

    system = s3fs.S3FileSystem(endpoint_url=server, skip_instance_cache=True, use_listings_cache=False)
    return {name.removeprefix(f"{prefix}/"): system.cat_file(name) for name in system.find(prefix)}
