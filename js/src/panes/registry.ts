import type { ComponentType } from "preact";
import type { Scene } from "../state/scene.ts";
import { MapPane } from "./map.tsx";
import { NeighborsPane } from "./neighbors.tsx";
import { Overview } from "./overview.tsx";
import { TermsPane } from "./terms.tsx";

export interface RegisteredPane {
  Content: ComponentType<{ scene: Scene }>;
  /** Where the Explorer shows the pane: in a column of its own, or in the last one with others. */
  explorer?: "column" | "story";
}

/**
 * All panes, in the order in which the Explorer shows them. A Python view of the same name shows the
 * pane alone, unless views/registry.tsx has a view of that name.
 */
export const PANES: Record<string, RegisteredPane> = {
  overview: { Content: Overview, explorer: "column" },
  map: { Content: MapPane, explorer: "column" },
  terms: { Content: TermsPane, explorer: "story" },
  neighbors: { Content: NeighborsPane, explorer: "story" },
};
