/** The tabs of the dashboard. */
import * as React from 'react';

import { IDashboardProps, tabNames, VIEWS } from './views';

/** Tabs as in the ARIA Authoring Practices: one Tab stop, arrow keys move between tabs. */
export function Tabs({
  view,
  onView,
  trans
}: Pick<IDashboardProps, 'view' | 'onView' | 'trans'>): JSX.Element {
  const names = tabNames(trans);
  const list = React.useRef<HTMLDivElement>(null);
  const go = (event: React.KeyboardEvent) => {
    const steps: { [key: string]: number } = {
      ArrowRight: 1,
      ArrowLeft: -1,
      Home: -VIEWS.indexOf(view),
      End: VIEWS.length - 1 - VIEWS.indexOf(view)
    };
    if (event.key in steps) {
      event.preventDefault();
      const next = VIEWS[(VIEWS.indexOf(view) + steps[event.key] + VIEWS.length) % VIEWS.length];
      onView(next);
      list.current?.querySelector<HTMLElement>(`#gpushare-tab-${next}`)?.focus();
    }
  };
  return (
    <div
      ref={list}
      role="tablist"
      aria-label={trans.__('Views')}
      className="jp-GpuShareDashboard-tabs"
      onKeyDown={go}
    >
      {VIEWS.map(one => (
        <button
          key={one}
          id={`gpushare-tab-${one}`}
          role="tab"
          aria-selected={one === view}
          aria-controls="gpushare-dashboard-panel"
          tabIndex={one === view ? 0 : -1}
          onClick={() => onView(one)}
        >
          {names[one]}
        </button>
      ))}
    </div>
  );
}
