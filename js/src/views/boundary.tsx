import { Component, type ComponentChildren } from "preact";
import "./boundary.css";

interface Props {
  children: ComponentChildren;
}

/** Turns an error while drawing into a sentence where the view would be, instead of a blank cell. */
export class Boundary extends Component<Props, { problem?: string }> {
  override state: { problem?: string } = {};

  static override getDerivedStateFromError(error: unknown) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    const { problem } = this.state;
    if (problem === undefined) return this.props.children;
    return (
      <p class="prosect-failed" role="alert">
        This view could not be drawn. {problem}
      </p>
    );
  }
}
