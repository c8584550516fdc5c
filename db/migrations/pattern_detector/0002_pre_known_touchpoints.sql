-- What `thresholds` knew is carried over, and whatever the code of before still writes to it while it runs.

-- Of the scanners it kept only whether there are any, so the one that stands for them has no real name.
CREATE FUNCTION carry_touchpoint_over() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO known_touchpoints AS t (touchpoint_id, revision, config)
    VALUES (NEW.touchpoint_id, NEW.revision, jsonb_build_object(
        'thresholds', to_jsonb(NEW) - '{touchpoint_id,revision,scanned}'::text[],
        'signals', CASE WHEN NEW.scanned THEN '[{"scanner": "carried_over"}]'::jsonb ELSE '[]'::jsonb END
    ))
    ON CONFLICT (touchpoint_id) DO UPDATE
    SET revision = excluded.revision, scope = excluded.scope, config = excluded.config
    WHERE t.revision < excluded.revision;
    RETURN NULL;
END
$$;

-- The trigger first: it keeps writers out until this transaction ends, so that none slips in behind the copy.
CREATE TRIGGER carry_touchpoint_over AFTER INSERT OR UPDATE ON thresholds
    FOR EACH ROW EXECUTE FUNCTION carry_touchpoint_over();

UPDATE thresholds SET touchpoint_id = touchpoint_id;
