/** The choice of columns, and the CSV download of the visible ones. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

interface IColumnChooserProps {
  columns: readonly { readonly id: string; readonly label: string }[];
  shown: readonly string[];
  onChange: (shown: readonly string[]) => void;
  trans: TranslationBundle;
}

export function ColumnChooser({
  columns,
  shown,
  onChange,
  trans
}: IColumnChooserProps): JSX.Element {
  const [open, setOpen] = React.useState(false);
  const button = React.useRef<HTMLButtonElement>(null);
  // columns keep the order of the table, whatever the order of the clicks
  const toggle = (id: string) =>
    onChange(
      columns
        .map(c => c.id)
        .filter(one => (one === id ? !shown.includes(one) : shown.includes(one)))
    );
  const close = (event: React.KeyboardEvent) => {
    if (event.key === 'Escape') {
      setOpen(false);
      button.current?.focus();
    }
  };
  return (
    <div className="jp-GpuShareDashboard-chooser" onKeyDown={close}>
      <button
        ref={button}
        className="jp-GpuShare-button"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        {trans.__('Columns')}
      </button>
      {open && (
        <fieldset>
          <legend>{trans.__('Columns to show and download')}</legend>
          {columns.map(column => (
            <label key={column.id}>
              <input
                type="checkbox"
                checked={shown.includes(column.id)}
                disabled={shown.length === 1 && shown.includes(column.id)}
                onChange={() => toggle(column.id)}
              />
              {column.label}
            </label>
          ))}
        </fieldset>
      )}
    </div>
  );
}

interface IDownloadProps {
  /** Resolves to the CSV text; rejects with a message. */
  ask: () => Promise<string>;
  name: string;
  trans: TranslationBundle;
}

export function Download({ ask, name, trans }: IDownloadProps): JSX.Element {
  const [problem, setProblem] = React.useState<string | null>(null);
  const download = async () => {
    try {
      offer(await ask(), name);
      setProblem(null);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <button
        className="jp-GpuShare-button"
        title={trans.__('All rows, visible columns')}
        onClick={() => void download()}
      >
        {trans.__('Download CSV')}
      </button>
      {problem !== null && (
        <span className="jp-GpuShare-refusal" role="alert">
          {problem}
        </span>
      )}
    </>
  );
}

function offer(text: string, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  link.download = name;
  link.click();
  // some browsers save an empty file when the URL is revoked at once
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
