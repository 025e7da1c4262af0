/** The dashboard as a main area widget: it polls and renders only while it is visible. */
import { IThemeManager, MainAreaWidget, ReactWidget } from '@jupyterlab/apputils';
import { IStateDB } from '@jupyterlab/statedb';
import { TranslationBundle } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { IChartPanels } from '../charts/grid';
import { ChartSource } from '../charts/source';
import { gpuIcon } from '../icon';
import { IGpuShare } from '../tokens';
import { ClusterTables } from './clusterTables';
import { Dashboard } from './dashboard';
import { ITableActions } from './rowActions';
import { TableName } from './state';
import { TableActions } from './tableActions';
import { Chosen, NEEDS, View, VIEWS } from './views';

export { dragOut, makeChart, type ChartContent, type IChartContext } from '../charts/panel';
export { CHARTS, chartTitle, type ChartName } from '../charts/charts';
export { ChartSource };

const WIDGET_ID = 'jupyter-gpushare-dashboard';
/** The page of a workload has charts too. */
const WITH_CHARTS: readonly View[] = ['charts', 'workloads'];
const STATE_KEY = 'jupyter-gpushare:dashboard';

/** What is saved between visits. */
interface ISettings {
  view: View;
  minutes: number;
  chosen: Chosen;
}

export interface IDashboardContext {
  gpushare: IGpuShare;
  trans: TranslationBundle;
  themes: IThemeManager | null;
  memory: IStateDB | null;
  charts: ChartSource;
  panels: IChartPanels;
}

export class DashboardContent extends ReactWidget {
  constructor(private readonly context: IDashboardContext) {
    super();
    this.addClass('jp-GpuShareDashboard');
    this.cluster = new ClusterTables(context.gpushare);
    this.actions = new TableActions(context.gpushare, () => this.cluster.refresh(), context.trans);
    this.cluster.changed.connect(this.redraw, this);
    context.gpushare.changed.connect(this.redraw, this);
    context.themes?.themeChanged.connect(this.redraw, this);
    void this.restore();
  }

  /** Show one of the views; an unknown view changes nothing. */
  showView(view: string | undefined): void {
    if (VIEWS.some(one => one === view)) {
      this.change({ view: view as View });
    }
  }

  dispose(): void {
    this.context.gpushare.changed.disconnect(this.redraw, this);
    this.context.themes?.themeChanged.disconnect(this.redraw, this);
    this.charts?.dispose();
    this.cluster.dispose();
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.refresh();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.refresh();
  }

  protected onBeforeHide(msg: Message): void {
    super.onBeforeHide(msg);
    this.rest();
  }

  protected onBeforeDetach(msg: Message): void {
    this.rest();
    super.onBeforeDetach(msg);
  }

  protected render(): JSX.Element {
    const { gpushare, themes, trans } = this.context;
    return (
      <Dashboard
        state={this.cluster.state}
        status={gpushare.state.status}
        {...this.settings}
        theme={themes?.theme ?? ''}
        onView={view => this.change({ view })}
        onMinutes={minutes => this.change({ minutes })}
        onChosen={(table: TableName, columns) =>
          this.change({ chosen: { ...this.settings.chosen, [table]: columns } })
        }
        onCsv={(table, columns) => this.cluster.csv(table, columns)}
        onRetry={() => this.cluster.refresh()}
        onManage={(workload, action) => this.cluster.manage(workload, action)}
        onLimit={limit => this.cluster.limit(limit)}
        bookings={this.cluster.bookings}
        charts={this.context.charts}
        panels={this.context.panels}
        actions={this.actions}
        trans={trans}
      />
    );
  }

  private async restore(): Promise<void> {
    const saved = (await this.context.memory?.fetch(STATE_KEY)) as Partial<ISettings> | undefined;
    this.settings = { ...this.settings, ...saved, ...this.changedSettings };
    this.isRestored = true;
    this.change(this.changedSettings);
  }

  private change(changes: Partial<ISettings>): void {
    this.settings = { ...this.settings, ...changes };
    this.changedSettings = { ...this.changedSettings, ...changes };
    if (this.isRestored && Object.keys(this.changedSettings).length > 0) {
      void this.context.memory?.save(STATE_KEY, { ...this.settings } as never);
    }
    this.refresh();
  }

  private refresh(): void {
    if (this.isVisible) {
      const { view, minutes } = this.settings;
      this.cluster.watch(NEEDS[view], minutes);
      if (WITH_CHARTS.includes(view)) {
        this.charts ??= this.context.charts.watch();
      } else {
        this.stopCharts();
      }
      this.update();
    }
  }

  /** Hidden: nothing is polled. */
  private rest(): void {
    this.cluster.watch([], this.settings.minutes);
    this.stopCharts();
  }

  private stopCharts(): void {
    this.charts?.dispose();
    this.charts = null;
  }

  private redraw(): void {
    if (this.isVisible) {
      this.update(); // Lumino merges several updates into one
    }
  }

  private readonly cluster: ClusterTables;
  private readonly actions: ITableActions;
  private charts: IDisposable | null = null;
  private settings: ISettings = { view: 'map', minutes: 60, chosen: {} };
  /** Choices made before the saved state was loaded override it. */
  private changedSettings: Partial<ISettings> = {};
  private isRestored = false;
}

export function makeDashboard(context: IDashboardContext): MainAreaWidget<DashboardContent> {
  const widget = new MainAreaWidget({ content: new DashboardContent(context) });
  widget.id = WIDGET_ID;
  widget.title.label = context.trans.__('GPU dashboard');
  widget.title.icon = gpuIcon;
  widget.title.closable = true;
  widget.toolbar.hide();
  return widget;
}
