export interface Cell {
  row: number;
  column: number;
}

/** Where an arrow, Home or End key leads in a grid, or undefined for other keys. */
export function moved(key: string, cell: Cell, rows: number, columns: number): Cell | undefined {
  const { row, column } = cell;
  const within = (r: number, c: number): Cell => ({
    row: Math.min(rows - 1, Math.max(0, r)),
    column: Math.min(columns - 1, Math.max(0, c)),
  });
  switch (key) {
    case "ArrowUp":
      return within(row - 1, column);
    case "ArrowDown":
      return within(row + 1, column);
    case "ArrowLeft":
      return within(row, column - 1);
    case "ArrowRight":
      return within(row, column + 1);
    case "Home":
      return within(row, 0);
    case "End":
      return within(row, columns - 1);
    default:
      return undefined;
  }
}

/** The cell of a grid of squares under the pointer. */
export function under(
  event: PointerEvent | MouseEvent,
  cell: number,
  rows: number,
  columns: number,
): Cell {
  const box = (event.currentTarget as Element).getBoundingClientRect();
  const at = (offset: number, count: number) =>
    Math.min(count - 1, Math.max(0, Math.floor(offset / cell)));
  return {
    row: at(event.clientY - box.top, rows),
    column: at(event.clientX - box.left, columns),
  };
}
