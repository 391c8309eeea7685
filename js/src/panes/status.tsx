import type { Loaded } from "../model/arrays.ts";
import "./status.css";

/** A line in the place of something that is loading or failed to load; nothing once it is there. */
export function Status({ of, what }: { of: Loaded<unknown>; what: string }) {
  if (of.state === "ready") return null;
  if (of.state === "loading") {
    return (
      <p class="prosect-status" role="status">
        loading {what} …
      </p>
    );
  }
  return (
    <p class="prosect-status prosect-problem" role="alert">
      {of.message}{" "}
      {of.retry && (
        <button type="button" class="prosect-link" onClick={of.retry}>
          try again
        </button>
      )}
    </p>
  );
}
