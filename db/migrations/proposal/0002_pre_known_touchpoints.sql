-- What the table of before knew is carried over, and whatever the code of before still writes to it while it runs.

CREATE FUNCTION carry_touchpoint_over() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO known_touchpoints AS t (touchpoint_id, revision, scope, config)
    VALUES (NEW.touchpoint_id, NEW.revision, NEW.config ->> 'scope', NEW.config - 'storage')
    ON CONFLICT (touchpoint_id) DO UPDATE
    SET revision = excluded.revision, scope = excluded.scope, config = excluded.config
    WHERE t.revision < excluded.revision;
    RETURN NULL;
END
$$;

-- The trigger first: it keeps writers out until this transaction ends, so that none slips in behind the copy.
CREATE TRIGGER carry_touchpoint_over AFTER INSERT OR UPDATE ON touchpoints
    FOR EACH ROW EXECUTE FUNCTION carry_touchpoint_over();

UPDATE touchpoints SET touchpoint_id = touchpoint_id;
