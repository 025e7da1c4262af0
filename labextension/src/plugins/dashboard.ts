/** The dashboard: command, palette and launcher entries, layout restoration. */
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  ICommandPalette,
  IThemeManager,
  MainAreaWidget,
  WidgetTracker
} from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator } from '@jupyterlab/translation';

import { COMMANDS } from '../commands';
import type { IChartPanels } from '../charts/grid';
import type { ChartContent, ChartName, ChartSource, DashboardContent } from '../dashboard/widget';
import { gpuIcon } from '../icon';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';

const NAMESPACE = 'jupyter-gpushare-dashboard';
const CHARTS_NAMESPACE = 'jupyter-gpushare-charts';

export const dashboard: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:dashboard',
  description: 'The dashboard: pools, nodes, GPUs, queues, workloads, evictions.',
  autoStart: true,
  requires: [IGpuShare],
  optional: [ITranslator, ICommandPalette, ILauncher, ILayoutRestorer, IThemeManager, IStateDB],
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    memory: IStateDB | null
  ) => {
    const trans = bundle(translator);
    const tracker = new WidgetTracker<MainAreaWidget<DashboardContent>>({ namespace: NAMESPACE });
    const charts = new WidgetTracker<MainAreaWidget<ChartContent>>({ namespace: CHARTS_NAMESPACE });
    let widget: MainAreaWidget<DashboardContent> | null = null;
    // loaded when a dashboard or a chart is first opened, not with every page
    const load = async () => {
      const module = await import('../dashboard/widget');
      source ??= new module.ChartSource(gpushare);
      return { ...module, context: { gpushare, source, themes, trans } };
    };
    let source: ChartSource | null = null;
    type Module = Awaited<ReturnType<typeof load>>;
    const chartOf = (module: Module, name: ChartName) => {
      const known = charts.find(one => one.content.name === name);
      const made = known ?? module.makeChart(name, module.context);
      if (known === undefined) {
        void charts.add(made);
      }
      return made;
    };
    const panelsOf = (module: Module): IChartPanels => ({
      open: name => void app.commands.execute(COMMANDS.chart, { name }),
      drag: (name, event) =>
        module.dragOut(module.chartTitle(name, trans), () => chartOf(module, name), event)
    });
    app.commands.addCommand(COMMANDS.chart, {
      label: trans.__('GPU chart'),
      icon: gpuIcon,
      execute: async args => {
        const module = await load();
        const name = module.CHARTS.find(one => one === args.name);
        if (name === undefined) {
          return;
        }
        const chart = chartOf(module, name);
        if (!chart.isAttached) {
          app.shell.add(chart, 'main', { mode: 'split-right' });
        }
        app.shell.activateById(chart.id);
      },
      describedBy: { args: { type: 'object', properties: { name: { type: 'string' } } } }
    });
    app.commands.addCommand(COMMANDS.dashboard, {
      label: trans.__('GPU dashboard'),
      caption: trans.__('Node pools, nodes, GPUs, charts, queues, workloads and evictions'),
      icon: gpuIcon,
      execute: async args => {
        const module = await load();
        if (widget === null || widget.isDisposed) {
          const context = { gpushare, trans, themes, memory, charts: module.context.source };
          widget = module.makeDashboard({ ...context, panels: panelsOf(module) });
          void tracker.add(widget);
        }
        if (!widget.isAttached) {
          app.shell.add(widget, 'main');
        }
        widget.content.showView(args.view as string | undefined);
        app.shell.activateById(widget.id);
      }
    });
    void restorer?.restore(charts, {
      command: COMMANDS.chart,
      args: chart => ({ name: chart.content.name }),
      name: chart => chart.content.name
    });
    void restorer?.restore(tracker, { command: COMMANDS.dashboard, name: () => NAMESPACE });
    palette?.addItem({ command: COMMANDS.dashboard, category: trans.__('GPU share') });
    launcher?.add({ command: COMMANDS.dashboard, category: trans.__('Other'), rank: 10 });
  }
};
