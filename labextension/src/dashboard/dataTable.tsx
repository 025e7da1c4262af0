/** A virtualized table of any length, sorted by its headers, with selectable columns. */
import {
  Column,
  ColumnDef,
  ExpandedState,
  flexRender,
  getCoreRowModel,
  getExpandedRowModel,
  getFilteredRowModel,
  getSortedRowModel,
  Row,
  SortingState,
  Table,
  useReactTable
} from '@tanstack/react-table';
import { useVirtualizer, VirtualItem } from '@tanstack/react-virtual';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Cell, cellText, compareCells, emptyColumns, IColumn } from './columns';
import { IRowAction } from './rowActions';
import { RowActions } from './rowButtons';

const ROW_PX = 28;
/** Rows rendered beyond the visible ones, so that fast scrolling shows no gap. */
const AHEAD = 12;

interface IDataTableProps<Item> {
  /** Accessible name of the table. */
  label: string;
  rows: readonly Item[];
  columns: readonly IColumn<Item>[];
  /** Ids of the visible columns, in order. */
  shown: readonly string[];
  filter?: string;
  rowId: (row: Item) => string;
  childrenOf?: (row: Item) => readonly Item[];
  onPick?: (row: Item) => void;
  picked?: string | null;
  /** Buttons in a last column; without it, or where no row has any, there is no such column. */
  actionsOf?: (row: Item) => readonly IRowAction[];
  trans: TranslationBundle;
}

export function DataTable<Item>(props: IDataTableProps<Item>): JSX.Element {
  const { rows, label, trans } = props;
  const table = useTable(props);
  const scroller = React.useRef<HTMLDivElement>(null);
  const visibleRows = table.getRowModel().rows;
  const virtual = useVirtualizer({
    count: visibleRows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    overscan: AHEAD,
    getItemKey: index => visibleRows[index].id
  });
  const items = virtual.getVirtualItems();
  const { actionsOf } = props;
  const hasActions = React.useMemo(
    () => actionsOf !== undefined && rows.some(row => actionsOf(row).length > 0),
    [actionsOf, rows]
  );
  const { columns } = props;
  const empty = React.useMemo(() => emptyColumns(rows, columns).join(' '), [rows, columns]);
  const span = props.shown.length + (hasActions ? 1 : 0);
  const above = items.length > 0 ? items[0].start : 0;
  const below = items.length > 0 ? virtual.getTotalSize() - items[items.length - 1].end : 0;
  return (
    <div
      className="jp-GpuShareDashboard-scroll"
      ref={scroller}
      tabIndex={0}
      role="region"
      aria-label={label}
    >
      <table
        aria-rowcount={visibleRows.length + 1}
        aria-label={label}
        data-empty={empty}
      >
        <thead>
          <TableHead table={table} hasActions={hasActions} trans={trans} />
        </thead>
        <tbody>
          {above > 0 && <Spacer px={above} span={span} />}
          {items.map(item => (
            <TableRow
              key={item.key}
              item={item}
              row={visibleRows[item.index]}
              version={props.shown}
              measure={virtual.measureElement}
              onPick={props.onPick}
              actionsOf={hasActions ? actionsOf : undefined}
              trans={trans}
              isPicked={props.picked === visibleRows[item.index].id}
              original={visibleRows[item.index].original}
            />
          ))}
          {below > 0 && <Spacer px={below} span={span} />}
        </tbody>
      </table>
      {visibleRows.length === 0 && rows.length > 0 && (
        <p className="jp-GpuShare-faint">{trans.__('No matching rows.')}</p>
      )}
    </div>
  );
}

function useTable<Item>(props: IDataTableProps<Item>): Table<Item> {
  const { columns, shown, trans, childrenOf } = props;
  const [sorting, setSorting] = React.useState<SortingState>([]);
  const [expanded, setExpanded] = React.useState<ExpandedState>(true);
  const definitions = React.useMemo(
    () => columns.map(column => definition(column, trans)),
    [columns, trans]
  );
  const visible = React.useMemo(
    () => Object.fromEntries(columns.map(({ id }) => [id, shown.includes(id)])),
    [columns, shown]
  );
  return useReactTable({
    data: props.rows as Item[],
    columns: definitions,
    state: {
      sorting,
      expanded,
      columnVisibility: visible,
      columnOrder: [...shown],
      globalFilter: props.filter ?? ''
    },
    onSortingChange: setSorting,
    onExpandedChange: setExpanded,
    getRowId: (row, _index, parent) =>
      parent === undefined ? props.rowId(row) : `${parent.id} ${props.rowId(row)}`,
    getSubRows: childrenOf === undefined ? undefined : row => childrenOf(row) as Item[],
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
    getFilteredRowModel: getFilteredRowModel(),
    getExpandedRowModel: getExpandedRowModel(),
    filterFromLeafRows: true,
    autoResetExpanded: false
  });
}

/** An explicit id and accessor: TanStack would read a dot in an accessor key as a path. */
function definition<Item>(column: IColumn<Item>, trans: TranslationBundle): ColumnDef<Item> {
  return {
    id: column.id,
    header: column.label,
    accessorFn: row => cellText(column.value(row), column, trans),
    cell: context => context.getValue(),
    filterFn: 'includesString',
    sortingFn: (a, b) =>
      compareCells(column.value(a.original) as Cell, column.value(b.original) as Cell),
    sortDescFirst: false,
    meta: { kind: column.kind ?? 'text', tone: column.tone } satisfies IMeta<Item>
  };
}

function TableHead<Item>({
  table,
  hasActions,
  trans
}: {
  table: Table<Item>;
  hasActions: boolean;
  trans: TranslationBundle;
}): JSX.Element {
  return (
    <tr aria-rowindex={1}>
      {table.getFlatHeaders().map(header => (
        <th
          key={header.id}
          scope="col"
          data-kind={metaOf(header.column).kind}
          data-column={header.column.id}
          aria-sort={sortWord(header.column.getIsSorted())}
        >
          <button
            className="jp-GpuShareDashboard-sort"
            title={trans.__('Sort by this column')}
            onClick={header.column.getToggleSortingHandler()}
          >
            {flexRender(header.column.columnDef.header, header.getContext())}
            <span aria-hidden="true">{ARROWS[String(header.column.getIsSorted())]}</span>
          </button>
        </th>
      ))}
      {hasActions && (
        <th scope="col" data-column="actions">
          {trans.__('Actions')}
        </th>
      )}
    </tr>
  );
}

const ARROWS: { readonly [sorted: string]: string } = { asc: ' ▲', desc: ' ▼', false: '' };

function sortWord(sorted: false | 'asc' | 'desc'): 'ascending' | 'descending' | 'none' {
  return sorted === false ? 'none' : sorted === 'asc' ? 'ascending' : 'descending';
}

interface IMeta<Item> {
  readonly kind: string;
  readonly tone: IColumn<Item>['tone'];
}

function metaOf<Item>(column: Column<Item>): IMeta<Item> {
  return column.columnDef.meta as IMeta<Item>;
}

interface ITableRowProps<Item> {
  item: VirtualItem;
  row: Row<Item>;
  /** Only compared: a row renders again when it, its index or the columns change. */
  original: Item;
  version: readonly string[];
  isPicked: boolean;
  measure: (element: Element | null) => void;
  onPick?: (row: Item) => void;
  actionsOf?: (row: Item) => readonly IRowAction[];
  trans: TranslationBundle;
}

function TableRowView<Item>({
  item,
  row,
  measure,
  onPick,
  actionsOf,
  trans,
  isPicked
}: ITableRowProps<Item>): JSX.Element {
  return (
    <tr
      ref={measure}
      data-index={item.index}
      aria-rowindex={item.index + 2}
      data-depth={row.depth}
      data-picked={isPicked || undefined}
    >
      {row.getVisibleCells().map((cell, index) => {
        const text = flexRender(cell.column.columnDef.cell, cell.getContext());
        return (
          <td
            key={cell.id}
            data-kind={metaOf(cell.column).kind}
            data-column={cell.column.id}
            data-tone={metaOf(cell.column).tone?.(row.original)}
          >
            {index === 0 && onPick !== undefined ? (
              <button
                className="jp-GpuShare-link"
                aria-pressed={isPicked}
                onClick={() => onPick(row.original)}
              >
                {text}
              </button>
            ) : (
              text
            )}
          </td>
        );
      })}
      {actionsOf !== undefined && (
        <td data-column="actions">
          <RowActions actions={actionsOf(row.original)} trans={trans} />
        </td>
      )}
    </tr>
  );
}

const TableRow = React.memo(
  TableRowView,
  (a, b) =>
    a.original === b.original &&
    a.version === b.version &&
    a.isPicked === b.isPicked &&
    a.item.index === b.item.index &&
    a.onPick === b.onPick &&
    a.actionsOf === b.actionsOf
) as typeof TableRowView;

function Spacer({ px, span }: { px: number; span: number }): JSX.Element {
  return (
    <tr aria-hidden="true">
      <td colSpan={span} style={{ height: px, padding: 0, border: 'none' }} />
    </tr>
  );
}
