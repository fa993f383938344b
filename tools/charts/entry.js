// The parts of Apache ECharts that the charts of a report use; build.py bundles them.

import { getInstanceByDom, init, use, version } from "echarts/core";
import { BarChart, CustomChart, HeatmapChart, LineChart, SankeyChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  MarkPointComponent,
  TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([
  BarChart, CustomChart, HeatmapChart, LineChart, SankeyChart, ScatterChart,
  AriaComponent, DataZoomComponent, GridComponent, LegendComponent, MarkLineComponent, MarkPointComponent,
  TooltipComponent, VisualMapComponent,
  SVGRenderer,
]);

export { getInstanceByDom, init, version };
